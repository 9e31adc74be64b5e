# Built in one stage, run in another: no compiler, pip or setuptools is in what runs.
FROM python:3.13.16-slim-trixie AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1

RUN python -m venv /opt/perdure
WORKDIR /src
# The locked dependencies first: they change less often than the project, and so does their layer.
COPY requirements.lock ./
RUN /opt/perdure/bin/pip install --require-hashes --requirement requirements.lock
COPY pyproject.toml LICENSE ./
COPY workflows/ workflows/
COPY activities/ activities/
COPY workers/ workers/
COPY scripts/ scripts/
RUN /opt/perdure/bin/pip install --no-build-isolation --no-deps . \
    && /opt/perdure/bin/pip uninstall --yes setuptools pip


FROM python:3.13.16-slim-trixie

# A number, not only a name, so that an orchestrator can see that it is not root.
RUN groupadd --gid 10001 perdure \
    && useradd --uid 10001 --gid perdure --home-dir /var/lib/perdure --create-home --shell /usr/sbin/nologin perdure \
    && install -d -o perdure -g perdure /var/lib/perdure/store /var/lib/perdure/workspaces

# What the tools of the workspace need; Debian's own version of the day, with its security fixes.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap git \
    && rm -rf /var/lib/apt/lists/*

COPY --from=build /opt/perdure /opt/perdure

ENV PATH=/opt/perdure/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PERDURE_STORE=file:///var/lib/perdure/store \
    PERDURE_WORKSPACES=/var/lib/perdure/workspaces

WORKDIR /var/lib/perdure
USER 10001:10001
# A worker that is asked to stop finishes short activities and hands the others back.
STOPSIGNAL SIGTERM
ENTRYPOINT ["perdure", "worker"]
