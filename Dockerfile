# Troupe in a container: built in one stage, run as another user than root in the next, without compilers or sources.
#
#   docker build -t troupe .        or, with everything around it: docker compose up
#
# The image holds torch for CPUs. For NVIDIA GPUs, with the torch of PyPI, which is built for CUDA:
#
#   docker build -t troupe:cuda --target cuda --build-arg TORCH_INDEX=https://pypi.org/simple .

ARG NODE_IMAGE=node:22.15.0-bookworm-slim

FROM ${NODE_IMAGE} AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN apt-get update \
  && apt-get install -y --no-install-recommends python3 python3-venv gcc libc6-dev \
  && rm -rf /var/lib/apt/lists/*
ENV TROUPE_VENV=/opt/venv TROUPE_HOME=/tmp/home TROUPE_PIP_ARGS="--extra-index-url ${TORCH_INDEX}"
WORKDIR /src
COPY . .
# Packages, the venv, the code of policy.proto; then what the package ships, where it will run.
RUN node cli/setup.js && npm pack --pack-destination /tmp \
  && mkdir -p /opt/troupe && tar -xzf /tmp/troupe-*.tgz -C /opt/troupe --strip-components=1
WORKDIR /opt/troupe
RUN cp /src/package-lock.json /src/.npmrc . && npm ci --omit=dev --ignore-scripts=false \
  && node cli/setup.js --python-only && rm -rf /root/.npm

FROM ${NODE_IMAGE} AS runtime
# python3-venv: `setup environments` makes a venv of its own.
RUN apt-get update \
  && apt-get install -y --no-install-recommends python3 python3-venv libgomp1 \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --create-home --uid 10001 troupe \
  && install -d -o troupe -g troupe /runs
COPY --from=build /opt /opt
# What the user adds (`setup environments`, fetched weights) lies in the volume, which all containers of a run see; runs
# lie beside it, in /runs/runs.
ENV NODE_ENV=production TROUPE_VENV=/opt/venv TROUPE_HOME=/runs/home PYTHONDONTWRITEBYTECODE=1
USER troupe
WORKDIR /runs
VOLUME /runs
ENTRYPOINT ["node", "/opt/troupe/cli/bin.js"]
CMD ["doctor"]

# For the learner on NVIDIA GPUs. A torch for CPUs would train on the CPU without a word, so it fails the build.
FROM runtime AS cuda
RUN /opt/venv/bin/python -c "import torch; assert torch.version.cuda, f'torch {torch.__version__} is for CPUs: give TORCH_INDEX'"
# The driver's libraries that NVIDIA's container toolkit puts into the container.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM runtime AS cpu
