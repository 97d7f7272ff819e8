from dataclasses import replace
from typing import Any

import pytest

from fedsub.datasets.errors import UserError
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.stacked.architecture import Architecture


@pytest.mark.parametrize(
    ("made", "changes", "words"),
    [
        (Architecture(), {"hidden": (8, 0)}, "every width in hidden must be at least 1"),
        (Architecture(), {"dropout": 1.0}, r"dropout must be in \[0, 1\), and finite; it is 1.0"),
        (Schedule(), {"rounds": 0}, "rounds must be at least 1"),
        (Schedule(), {"stragglers": 0.5}, "set local_epochs to 2 or more"),
        (Schedule(), {"leavers": "3@5+3@6"}, "write each client once"),
        (Schedule(), {"privacy_noise": 1.0}, "set privacy_clip as well"),
        (Schedule(), {"quantise": 1}, "quantise must be 2 to 16 bits, or 0, and finite; it is 1"),
        (Schedule(), {"error_feedback": True}, "set top_k or quantise"),
        (Schedule(), {"selection": "mean_validation"}, "unknown selection rule 'mean_validation'"),
    ],
)
def test_settings_check_themselves_when_made(
    made: Architecture | Schedule, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        replace(made, **changes)
