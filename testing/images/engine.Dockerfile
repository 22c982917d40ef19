# An engine for end-to-end tests: the simulator, which needs Python and nothing else. The context is the repository's root.
ARG BASE_IMAGE=python:3.11-slim-bookworm
FROM ${BASE_IMAGE}
COPY testing/llmservice_testing/__init__.py /opt/llmservice_testing/__init__.py
COPY testing/llmservice_testing/simulator/ /opt/llmservice_testing/simulator/
# Many are started, and each would compile all that it imports.
RUN python3 -m compileall -q /opt "$(python3 -c "import sysconfig; print(sysconfig.get_path('stdlib'))")"
ENV PYTHONPATH=/opt PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8000 9000
ENTRYPOINT ["python3", "-m", "llmservice_testing.simulator"]
CMD ["--first", "0.0.0.0", "--port", "8000", "--admin", "0.0.0.0:9000"]
