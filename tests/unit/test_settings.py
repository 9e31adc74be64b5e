"""What the environment means."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec, WithSerializationContext

from workers.client import connect
from workers.codec import load_codec
from workers.settings import SettingsError, read_settings, read_usable


def test_the_working_directory_does_not_decide_where_the_default_store_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = read_settings({})
    monkeypatch.chdir(tmp_path)
    assert read_settings({}) == here
    assert here.store.startswith("file:///")
    assert here.store.endswith("/.perdure/store")


def test_a_bundle_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"PERDURE_BUNDLES: there is no folder .*/gone"):
        read_settings({"PERDURE_BUNDLES": f"{tmp_path}:{tmp_path / 'gone'}"})


def test_a_build_id_that_temporal_would_refuse_is_refused_here() -> None:
    with pytest.raises(SettingsError, match="PERDURE_BUILD_ID"):
        read_settings({"PERDURE_BUILD_ID": "no spaces"})


def test_what_cannot_be_used_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PERDURE_GRACE": "soon", "PERDURE_STORE": "ftp://x", "PERDURE_SLOTS_TOOLS": "7"}.items():
        monkeypatch.setenv(name, value)
    settings, wrong = read_usable()
    assert [error.variable for error in wrong] == ["PERDURE_STORE", "PERDURE_GRACE"]
    assert (settings.grace, settings.slots.tools) == (25.0, 7)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TEMPORAL_PROFILE", "nowhere"),
        ("TEMPORAL_CONFIG_FILE", __file__),
        ("TEMPORAL_ADDRESS", ":::nowhere"),
        ("TEMPORAL_TLS_CLIENT_CERT_PATH", "/nowhere"),
    ],
)
async def test_what_no_client_can_be_made_of_is_refused_as_a_setting(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match="TEMPORAL_") as caught:
        await connect(read_settings({}))
    assert "\n" not in str(caught.value)


def test_credentials_and_keys_are_not_shown() -> None:
    settings = read_settings({"PERDURE_CREDENTIAL_CRM": "canary-1", "OPENAI_API_KEY": "canary-2"})
    assert settings.credentials == {"CRM": "canary-1"}
    assert settings.lookup("OPENAI_API_KEY") == "canary-2"
    assert "canary" not in repr(settings)


def test_what_looks_secret_is_known_for_redaction() -> None:
    settings = read_settings(
        {
            "OPENAI_API_KEY": "canary-key",
            "PERDURE_CREDENTIAL_SMTP": "smtp://agent:canary%21pass@mail.example.com",
            "HOME": "not-secret",
        }
    )
    assert set(settings.secrets()) == {"canary-key", "smtp://agent:canary%21pass@mail.example.com", "canary!pass"}


@pytest.mark.parametrize("url", ["ftp://x", "/just/a/path", "file://host/folder", "s3:/"])
def test_a_store_url_that_cannot_be_used_is_named(url: str) -> None:
    with pytest.raises(SettingsError, match="PERDURE_STORE"):
        read_settings({"PERDURE_STORE": url})


def test_lists_are_split_and_empty_parts_left_out() -> None:
    settings = read_settings({"PERDURE_TOOLS": "a, b,,", "PERDURE_FETCH_PRIVATE": ""})
    assert settings.tool_modules == ("a", "b")
    assert settings.private_hosts == ()


def test_slots_rates_grace_and_health_are_read() -> None:
    found = read_settings(
        {
            "PERDURE_SLOTS_TOOLS": "7",
            "PERDURE_RATE_AGENTS": "2.5",
            "PERDURE_GRACE": "9",
            "PERDURE_HEALTH": "10.0.0.7:8080",
        }
    )
    assert (found.slots.tools, found.slots.agents_per_second, found.grace) == (7, 2.5, 9)
    assert found.health == ("10.0.0.7", 8080)
    assert read_settings({"PERDURE_HEALTH": "8080"}).health == ("127.0.0.1", 8080)
    assert read_settings({}).health is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PERDURE_SLOTS_TOOLS", "many"),
        ("PERDURE_SLOTS_AGENTS", "0"),
        ("PERDURE_RATE_TOOLS", "-1"),
        ("PERDURE_GRACE", "inf"),
        ("PERDURE_HEALTH", "localhost"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        read_settings({name: value})


class Needy(PayloadCodec, WithSerializationContext):
    """A codec that wants to know for whom it works."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    def with_context(self, context: object) -> "Needy":
        return self


class Keyless:
    """What fails with its key in its words."""

    def __init__(self) -> None:
        raise ValueError("canary-key is too short")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere:Codec", "No module named 'nowhere'"),
        ("tests.unit.test_settings:Nothing", "Nothing"),
        ("tests.unit.test_settings:Keyless", "cannot be loaded: ValueError$"),
        ("tests.unit.test_settings:Path", "is no temporalio.converter.PayloadCodec"),
        ("tests.unit.test_settings:Needy", "serialization context"),
    ],
)
def test_a_codec_that_cannot_be_used_is_named_without_its_key(name: str, said: str) -> None:
    with pytest.raises(SettingsError, match=f"PERDURE_CODEC: .*{said}"):
        load_codec(read_settings({"PERDURE_CODEC": name}).codec)
