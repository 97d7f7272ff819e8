"""MkDocs hook: pages made from other sources, the commands' help and CONTRIBUTING.md."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
COMMANDS = "{{ commands }}"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add CONTRIBUTING.md as a page."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "contributing.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the commands; turn links out of docs/ into links between pages."""
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, _commands())
    return markdown.replace("](../CONTRIBUTING.md", "](contributing.md")


def _commands() -> str:
    names = re.findall(r"^    (\w+) ", _help(), flags=re.MULTILINE)
    return "\n\n".join(f"## {name}\n\n```text\n{_help(name)}```" for name in names)


def _help(*command: str) -> str:
    """Output of `fedsub COMMAND --help`. Raises CalledProcessError if the command fails."""
    asked = [sys.executable, "-m", "fedsub.benchmark", *command, "--help"]
    width = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(asked, check=True, capture_output=True, text=True, env=width, cwd=ROOT).stdout
