"""A real cluster in containers for the end-to-end tests: kind, with the images of this repository in it.

    python -m llmservice_testing.kind run -- pytest tests/e2e    # make a cluster, run a command, remove the cluster
    python -m llmservice_testing.kind up                         # make one and keep it; says how to use it
    python -m llmservice_testing.kind down

What has to be there: Docker (it is started where root may and nobody did). kind is taken from the PATH or built with Go.

Two variables say where images come from. Unset or empty they are the published ones.

- `KIND_NODE_IMAGE`: the node image. `build` makes one of Debian packages and Go modules (`node_image`).
- `BASE_IMAGE`: the base of the images that are built here. `build` makes one of Debian packages (`images`).

So a machine that reaches no container registry sets both to `build`.
"""
