"""What is generated is up to date, and the version is the same everywhere."""

from importlib.metadata import version

import yaml

from llmservice_testing.manifests import CHART, DEFINITION, INSTALL, differences, documents


def test_generated_manifests_are_up_to_date() -> None:
    found = differences()
    assert not found, f"run make manifests:\n{found}"


def test_the_chart_and_the_manifests_have_the_definition_of_this_version() -> None:
    ours = yaml.safe_load(DEFINITION.read_text())
    assert yaml.safe_load((CHART / "files" / DEFINITION.name).read_text()) == ours
    (installed,) = [one for one in documents(INSTALL) if one["kind"] == "CustomResourceDefinition"]
    assert installed["spec"] == ours["spec"]


def test_the_version_is_that_of_the_operator() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version("llmservice"), version("llmservice"))
    (deployment,) = [one for one in documents(INSTALL) if one["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"llmservice/operator:{version('llmservice')}"
    assert {one["metadata"]["labels"]["app.kubernetes.io/version"] for one in documents(INSTALL)} == {
        version("llmservice")
    }
