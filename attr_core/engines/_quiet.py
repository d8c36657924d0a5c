"""Keep transformers and huggingface_hub from writing to the user's terminal."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator

from attr_core._optional import require


@contextlib.contextmanager
def quiet(*, stderr: bool = False) -> Iterator[None]:
    """Without their progress bars, log lines and warnings; ``stderr`` also mutes bars that cannot be switched off."""
    logging = require("transformers.utils.logging", extra="hf")
    hub = require("huggingface_hub.utils", extra="hf")
    verbosity, hub_verbosity = logging.get_verbosity(), hub.logging.get_verbosity()
    bars, hub_bars = logging.is_progress_bar_enabled(), not hub.are_progress_bars_disabled()
    try:
        logging.set_verbosity(logging.CRITICAL)
        hub.logging.set_verbosity(logging.CRITICAL)
        logging.disable_progress_bar()
        with contextlib.ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            hub.disable_progress_bars()
            if stderr:
                stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            yield
    finally:
        logging.set_verbosity(verbosity)
        hub.logging.set_verbosity(hub_verbosity)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns where an environment variable decides
            if bars:
                logging.enable_progress_bar()
            if hub_bars:
                hub.enable_progress_bars()
