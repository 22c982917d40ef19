# The operator. Both stages begin with the same Python; only the virtual environment passes from one to the other.
#
#   docker build -t llmservice/operator:0.1.0 .
#
# BASE_IMAGE   any Linux with Python 3.11 or newer as python3.
# BUILD_IMAGE  the same Python, at the same path, with pip, and with whatever the build needs to reach its package index
#              (a certificate authority, say). None of it gets into the image.
ARG BASE_IMAGE=python:3.11-slim-bookworm
ARG BUILD_IMAGE=${BASE_IMAGE}

FROM ${BUILD_IMAGE} AS builder
# Where pip finds packages, if not at its default index. Arguments of this stage leave no trace in the image.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

# The same sources make the same files: bytecode that is tied to its source by a hash and not by a time, compiled in one
# order, and one time for all. Python does not check the hash again: nobody changes what is in an image. The client's
# typed models, a third of the size, stay uncompiled: they are never loaded.
ENV SOURCE_DATE_EPOCH=1767225600 PYTHONHASHSEED=0

WORKDIR /src
COPY requirements/ requirements/
RUN python3 -m venv --without-pip /opt/build \
 && python3 -m venv --without-pip /opt/llmservice \
 && rm -f /opt/llmservice/bin/[Aa]ctivate* \
 && python3 -m pip --python /opt/build/bin/python install --quiet --only-binary :all: --require-hashes -r requirements/build.txt \
 && python3 -m pip --python /opt/llmservice/bin/python install --quiet --no-compile --only-binary :all: --require-hashes -r requirements/runtime.txt \
 && /opt/llmservice/bin/python -m compileall -q -j 1 --invalidation-mode unchecked-hash \
      -x 'kubernetes/(aio/)?client/(api|models)/' /opt/llmservice/lib \
 && find /opt/llmservice -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
COPY pyproject.toml README.md LICENSE ./
COPY operator/ operator/
RUN python3 -m pip --python /opt/build/bin/python wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
 && python3 -m pip --python /opt/llmservice/bin/python install --quiet --no-compile --no-deps --no-index /wheels/*.whl \
 && rm /opt/llmservice/lib/python3*/site-packages/llmservice-*.dist-info/direct_url.json \
 && /opt/llmservice/bin/python -m compileall -q -j 1 --invalidation-mode unchecked-hash /opt/llmservice/lib/python3*/site-packages/llmservice \
 && find /opt/llmservice -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +

FROM ${BASE_IMAGE}
# What a base image has for installing packages is of no use to the operator, and of some to whoever breaks in. Python's own
# library comes without bytecode, and would be compiled at each start: that is half the time of a start.
RUN library=$(python3 -c "import sysconfig; print(sysconfig.get_path('stdlib'))") \
 && rm -rf "$library"/ensurepip "$library"/site-packages/pip* "$library"/site-packages/setuptools* "$library"/site-packages/wheel* \
      /usr/local/bin/pip* \
 && PYTHONHASHSEED=0 python3 -m compileall -q -j 1 --invalidation-mode unchecked-hash "$library"
COPY --from=builder /opt/llmservice /opt/llmservice
# Nothing is written: the root file system may be read-only.
ENV PATH=/opt/llmservice/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
LABEL org.opencontainers.image.title="LLMService operator" \
      org.opencontainers.image.description="Pauses and resumes token generation on fleets of LLM engines" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
# A number, and no name that the base image would have to know.
USER 65532:65532
EXPOSE 8080 9090
ENTRYPOINT ["llmservice"]
CMD ["operator", "--all-namespaces"]
