"""The span handler: what LlamaIndex says of the methods that it runs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation.span import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index_instrumentation.dispatcher import active_instrument_tags

from attr_core.capture import Complaints
from attr_llamaindex.listening import heard
from attr_llamaindex.runs import Runs

__all__ = ["AttributionSpanHandler"]


class AttributionSpanHandler(BaseSpanHandler[BaseSpan]):
    """Passes spans on to :class:`~attr_llamaindex.runs.Runs` and keeps none itself."""

    _runs: Runs = PrivateAttr()

    def __init__(self, runs: Runs) -> None:
        super().__init__(open_spans={}, completed_spans=[], dropped_spans=[], current_span_ids={})
        self._runs = runs

    @classmethod
    def class_name(cls) -> str:
        """Its name."""
        return "AttributionSpanHandler"

    @property
    def complaints(self) -> Complaints:
        """What has been warned of."""
        return self._runs.complaints

    @heard
    def new_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        parent_span_id: str | None = None,
        tags: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A method is called."""
        tags = tags or active_instrument_tags.get()
        self._runs.enter(id_, bound_args.arguments, instance=instance, parent_id=parent_span_id, tags=tags)

    @heard
    def prepare_to_exit_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        result: Any | None = None,
        **kwargs: Any,
    ) -> None:
        """It returned."""
        self._runs.leave(id_, bound_args.arguments, result)

    @heard
    def prepare_to_drop_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        """It raised."""
        self._runs.drop(id_, err)

    @heard
    def close(self) -> None:
        """The dispatcher is shut down."""
        self._runs.hand_on_all()
