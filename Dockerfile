# From a package index:
#   docker build --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu -t fedsub-bench .
# Offline, from a folder `wheelhouse` that `make wheelhouse` filled on a connected machine, and the base image,
# loaded beforehand:
#   docker build --network none --build-arg PIP_NO_INDEX=1 -t fedsub-bench .
# The records stay outside, in a folder that user 1000 (or the one of --user) can write, and so do the graphs:
#   docker run --rm -v "$PWD/results:/work/results" -v "$PWD/graphs:/graphs" -e FEDSUB_DATA=/graphs fedsub-bench list
# Not slim: DGL needs libgomp of the system.
ARG BASE=python:3.11.16-bookworm@sha256:b99029c95d3d37fb1e4e76d287f7984373dca77c665885986e31b2c95260c13c
FROM ${BASE}

# pip reads these by their names; unset ones have no effect.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_NO_INDEX

ENV OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
WORKDIR /fedsub
COPY setup.cfg pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY fedsub fedsub
COPY datasets datasets
COPY methods methods
COPY benchmark benchmark
# Wheels are read from where they lie, and are no part of the image.
RUN --mount=type=bind,target=/context \
    pip install --no-cache-dir --find-links /context/wheelhouse --require-hashes --no-deps \
        --requirement requirements/run.txt \
    && pip install --no-cache-dir --find-links /context/wheelhouse 'setuptools>=78.1.1' \
    && pip install --no-cache-dir --find-links /context/wheelhouse --no-build-isolation . \
    && useradd --create-home --uid 1000 fedsub \
    && mkdir /work && chown fedsub /work

USER fedsub
WORKDIR /work
ENTRYPOINT ["fedsub"]
