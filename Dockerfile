# Image of Troupe. Two stages build it; the image itself has no compilers and no sources, and runs as a user other than root.
#
#   docker build -t troupe .        or, together with Kafka and the other roles: docker compose up
#
# The default image has torch for CPUs. For NVIDIA GPUs, take torch from PyPI, whose build is for CUDA:
#
#   docker build -t troupe:cuda --target cuda --build-arg TORCH_INDEX=https://pypi.org/simple .

ARG NODE_IMAGE=node:22.15.0-bookworm-slim

# The venv alone, from the files that decide what is in it: a change of the code does not fetch torch again.
FROM ${NODE_IMAGE} AS venv
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN apt-get update \
  && apt-get install -y --no-install-recommends python3 python3-venv gcc libc6-dev \
  && rm -rf /var/lib/apt/lists/*
ENV TROUPE_VENV=/opt/venv TROUPE_HOME=/tmp/home TROUPE_PIP_ARGS="--no-cache-dir --extra-index-url ${TORCH_INDEX}"
WORKDIR /setup
COPY cli/setup.js cli/
COPY cli/setup cli/setup
COPY policy/requirements.txt policy/requirements-sandbox.txt dist/policy/
RUN node cli/setup.js --python-only

FROM venv AS build
WORKDIR /src
COPY . .
# Installs npm packages and generates the code of policy.proto; then unpacks the package where it will run.
RUN node cli/setup.js && npm pack --pack-destination /tmp \
  && mkdir -p /opt/troupe && tar -xzf /tmp/troupe-*.tgz -C /opt/troupe --strip-components=1
WORKDIR /opt/troupe
RUN cp /src/package-lock.json /src/.npmrc . && npm ci --omit=dev --ignore-scripts=false \
  && node cli/setup.js --python-only && rm -rf /root/.npm

FROM ${NODE_IMAGE} AS runtime
# python3-venv is for `setup environments`, which makes a venv.
RUN apt-get update \
  && apt-get install -y --no-install-recommends python3 python3-venv libgomp1 \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --create-home --uid 10001 troupe \
  && install -d -o troupe -g troupe /runs
# Two layers: a change of the code replaces the small one.
COPY --from=venv /opt/venv /opt/venv
COPY --from=build /opt/troupe /opt/troupe
# Parts that the user installs later (`setup environments`, downloaded weights) go to /runs/home, in the volume that all
# containers of a run share; the runs themselves are in /runs/runs.
ENV NODE_ENV=production TROUPE_VENV=/opt/venv TROUPE_HOME=/runs/home PYTHONDONTWRITEBYTECODE=1
USER troupe
WORKDIR /runs
VOLUME /runs
ENTRYPOINT ["node", "/opt/troupe/cli/bin.js"]
CMD ["doctor"]

# Before `cuda`, since Docker's classic builder also builds every stage that stands before its target.
FROM runtime AS cpu

# Image of the learner on NVIDIA GPUs. The build fails with a torch for CPUs, which would train on the CPU without a warning.
FROM runtime AS cuda
RUN /opt/venv/bin/python -c "import torch; assert torch.version.cuda, f'torch {torch.__version__} is for CPUs: give TORCH_INDEX'"
# Driver libraries that NVIDIA's container toolkit mounts into the container.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility

# Without a target: the image for CPUs.
FROM cpu
