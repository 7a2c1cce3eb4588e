"""Spans of OpenTelemetry that tests take from memory; `ci/opentelemetry.sh` has the packages."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module")
def tracer() -> trace.Tracer:
    """A tracer of the program; its finished spans are in ``EXPORTER``."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)
    return trace.get_tracer("test")
