# What a real vLLM needs of the system, beside Python and the C library. vLLM itself is mounted: it is 6 GB.
ARG BUILD_IMAGE=python:3.11-slim-bookworm
FROM ${BUILD_IMAGE}
RUN apt-get update --quiet \
 && apt-get install --quiet --yes --no-install-recommends libnuma1 \
 && rm -rf /var/lib/apt/lists/*
