"""The component in YAML: it loads where nobody has allowed anything, and holds primitives and secrets only."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from haystack import Pipeline
from haystack.core.errors import DeserializationError, SerializationError
from haystack.core.serialization import component_from_dict, component_to_dict
from haystack.utils import Secret
from haystack_parts import ANSWER, asked, engine, rag

import attr_haystack
from attr_core.errors import ConfigurationError
from attr_core.results import Budget
from attr_core.store import Store
from attr_haystack import AttributionComponent

NAME = "haystack_integrations.components.attribution.AttributionComponent"


def shout(text):
    return text.upper()


FULL = {
    "engine": "hf:some/model",
    "mode": "deferred",
    "algorithm": "likelihood",
    "store": "runs.db",
    "sample_rate": 0.5,
    "budget": Budget(calls=64, usd=0.5),
    "budget_per_day": "tokens=100000",
    "time_limit": 30.0,
    "granularity": "sentence",
    "totals": False,
    "seed": 3,
}


def test_the_class_lives_where_haystack_loads_from_and_the_package_shows_it():
    assert f"{AttributionComponent.__module__}.{AttributionComponent.__name__}" == NAME
    assert "AttributionComponent" in attr_haystack.__all__


def test_a_round_trip_keeps_every_parameter():
    written = component_to_dict(AttributionComponent(**FULL), "attribution")
    assert written["type"] == NAME
    assert written["init_parameters"] == {
        **FULL,
        "budget": "calls=64,usd=0.5",
        "budget_per_day": "tokens=100000",
        "redact": None,
    }
    again = component_from_dict(AttributionComponent, written, "attribution")
    assert component_to_dict(again, "attribution") == written


def test_defaults_round_trip_too():
    written = AttributionComponent().to_dict()
    again = AttributionComponent.from_dict(written)
    assert (again.mode, again.engine, again.to_dict()) == ("capture", None, written)


def test_a_pipeline_in_yaml_is_loaded_without_allowing_anything_and_runs(db):
    text = rag(attribution=AttributionComponent(store=str(db))).dumps()
    assert yaml.safe_load(text)["components"]["attribution"]["type"] == NAME
    loaded = Pipeline.loads(text)
    outputs = loaded.run(asked())["attribution"]
    assert outputs["replies"][0].text == ANSWER
    loaded.close()
    with Store(db) as store:
        assert store.last().id == outputs["attribution"]["trace_id"]
    assert yaml.safe_load(loaded.dumps())["components"] == yaml.safe_load(text)["components"]


def test_in_a_process_that_has_imported_nothing_of_attrkit_it_loads(tmp_path):
    file = tmp_path / "pipeline.yaml"
    pipeline = Pipeline()
    pipeline.add_component("attribution", AttributionComponent(**FULL))
    file.write_text(pipeline.dumps())
    program = f"""
import sys
from haystack import Pipeline
assert not any(name.startswith("attr_") for name in sys.modules)
with open({str(file)!r}) as text:
    component = Pipeline.load(text).get_component("attribution")
print(component.engine, component.options["granularity"])
import attr_haystack
assert attr_haystack.AttributionComponent is type(component)
"""
    environment = {"HAYSTACK_TELEMETRY_ENABLED": "False", "PATH": "", "HOME": str(tmp_path)}
    finished = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert finished.stdout == "hf:some/model sentence\n", finished.stderr


def test_secrets_stay_secrets(monkeypatch):
    component = AttributionComponent(
        Secret.from_env_var("THE_ENGINE"), store=Secret.from_env_var(["A", "B"], strict=False), mode="capture"
    )
    written = component_to_dict(component, "attribution")["init_parameters"]
    assert written["engine"] == {"type": "env_var", "env_vars": ["THE_ENGINE"], "strict": True}
    again = AttributionComponent.from_dict(component.to_dict())
    assert again.engine == Secret.from_env_var("THE_ENGINE")
    monkeypatch.setenv("THE_ENGINE", "hf:some/model")
    monkeypatch.setenv("B", "runs.db")
    assert "some/model" not in str(again.to_dict())


def test_a_token_cannot_be_written():
    with pytest.raises(ValueError, match="token"):
        AttributionComponent(Secret.from_token("hf:model"), mode="capture").to_dict()


def test_a_redactor_is_written_by_its_path_and_loaded_by_haystacks_rules(monkeypatch):
    written = AttributionComponent(redact=shout).to_dict()
    assert written["init_parameters"]["redact"].endswith("test_serialization.shout")
    with pytest.raises(DeserializationError, match="allow"):
        AttributionComponent.from_dict(written)
    builtin = AttributionComponent.from_dict({**written, "init_parameters": {"redact": "builtins.str"}})
    assert builtin.redact is str


def test_a_redactor_without_a_path_cannot_be_written():
    with pytest.raises(SerializationError):
        AttributionComponent(redact=lambda text: text).to_dict()


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"engine": engine()}, "a spec such as hf:MODEL"),
        ({"store": Store(":memory:")}, "a path"),
        ({"algorithm": object()}, "its name"),
        ({"estimator": object()}, "a name or a number"),
    ],
)
def test_objects_are_refused_with_what_to_give_instead(options, remedy):
    try:
        component = AttributionComponent(**options)
    except ConfigurationError:
        pytest.skip("refused when it is made")
    with pytest.raises(ConfigurationError, match=remedy):
        component.to_dict()


def test_a_path_is_written_as_text():
    assert AttributionComponent(store=Path("a") / "b.db").to_dict()["init_parameters"]["store"] == str(Path("a/b.db"))
