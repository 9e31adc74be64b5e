"""Traces into memory, and what makes a trace whole."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from workers.exporting import trace_to
from workers.inflight import InFlight
from workers.steps import Event
from workers.telemetry import Telemetry
from workers.watching import Observers, Watch

EXPORTER, TELEMETRY = InMemorySpanExporter(), Telemetry()


@dataclass(frozen=True)
class Seen:
    """A span, wherever it came from. `links`: trace and id of each span that it is linked to."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    failed: bool
    links: tuple[tuple[str, str], ...] = ()


def telemetry_in_memory() -> Telemetry:
    """The tracer's provider is one for the whole process, so this is one too."""
    if not TELEMETRY.plugins:
        trace_to(TELEMETRY, Resource.create({}), SimpleSpanProcessor(EXPORTER), content=False)
    EXPORTER.clear()
    return TELEMETRY


def in_memory() -> list[Seen]:
    """The spans that were exported in this process."""
    return [
        Seen(
            span.name,
            *_ids(span.context),
            f"{span.parent.span_id:016x}" if span.parent else "",
            dict(span.attributes or {}),
            not span.status.is_ok and span.status.status_code.name == "ERROR",
            tuple(_ids(link.context) for link in span.links),
        )
        for span in EXPORTER.get_finished_spans()
        if span.context is not None
    ]


def _ids(context: Any) -> tuple[str, str]:
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def check_linked(spans: Sequence[Seen]) -> None:
    """One trace, one root, every parent there, and nothing twice."""
    ids = [span.id for span in spans]
    assert len(set(ids)) == len(ids), f"a span came twice: {Counter(span.name for span in spans)}"
    assert len({span.trace for span in spans}) == 1
    assert len([span for span in spans if not span.parent]) == 1
    assert [span.name for span in spans if span.parent and span.parent not in ids] == []


def check_whole(spans: Sequence[Seen], result: dict[str, Any], *below: dict[str, Any]) -> None:
    """What `check_linked` checks, and the tokens of the result. `below`: the results of sub-agents, whose tokens are
    among those of their parent's."""
    check_linked(spans)
    for kind in ("input_tokens", "output_tokens"):
        name = f"gen_ai.usage.{kind}"
        asked = [span for span in spans if span.attributes.get("gen_ai.operation.name") == "chat"]
        assert sum(span.attributes.get(name, 0) for span in asked) == result["usage"][kind] > 0
        told = [span.attributes[name] for span in spans if span.name.startswith("invoke") and name in span.attributes]
        assert sorted(told) == sorted(each["usage"][kind] for each in (result, *below))


def options(telemetry: Telemetry, seen: list[Event]) -> dict[str, Any]:
    """What a traced worker is made with."""
    observers = Observers(seen.append, *telemetry.observers)
    return {
        "plugins": telemetry.plugins,
        "interceptors": [InFlight(observers), Watch(observers), *telemetry.interceptors],
    }
