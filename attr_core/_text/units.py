"""Units that follow a number -> one name each, so that "50 percent" is "50%"."""

from __future__ import annotations

import re

__all__ = ["CURRENCIES", "UNIT", "unit_named"]

CURRENCIES = {
    "$": "USD",
    "US$": "USD",
    "A$": "AUD",
    "C$": "CAD",
    "€": "EUR",
    "£": "GBP",
    "¥": "JPY",
    "₹": "INR",
    "₩": "KRW",
    "₽": "RUB",
    **{code: code for code in ("USD", "EUR", "GBP", "CHF", "JPY", "CAD", "AUD", "INR", "CNY")},
}

# Case counts: a MW is no mW.
_SYMBOLS = {
    "%": "%", "‰": "‰", "pct": "%", "pp": "pp", "°": "°", "°C": "°C", "° C": "°C", "℃": "°C", "°F": "°F", "° F": "°F",
    "µg": "µg", "μg": "µg", "mcg": "µg", "µm": "µm", "μm": "µm", "mL": "ml", "dL": "dl", "L": "l", "m2": "m²",
    "km2": "km²", "m3": "m³", "lbs": "lb", "hr": "h", "hrs": "h", "sec": "s", "secs": "s", "mins": "min", "KB": "kB",
    "kph": "km/h", "mph": "mi/h", "a.m.": "am", "AM": "am", "A.M.": "am", "p.m.": "pm", "PM": "pm", "P.M.": "pm",
}  # fmt: skip
_SYMBOLS |= {
    symbol: symbol
    for symbols in (
        "ng mg g kg ml dl cl l nm mm cm m km m² km² m³ ft lb oz s ms min h am pm",
        "Hz kHz MHz GHz W kW MW GW Wh kWh MWh GWh V mV kV mA Pa kPa hPa MPa bar J kJ kcal cal",
        "kB MB GB TB PB px mol mmol dB",
    )
    for symbol in symbols.split()
}
_NAMES = {
    "%": "percent|per cent",
    "pp": "percentage points?",
    "g": "gram(?:me)?s?",
    "kg": "kilogram(?:me)?s?|kilos?",
    "mg": "milligram(?:me)?s?",
    "µg": "microgram(?:me)?s?",
    "t": "tons?|tonnes?",
    "l": "lit(?:re|er)s?",
    "ml": "millilit(?:re|er)s?",
    "m": "met(?:re|er)s?",
    "cm": "centimet(?:re|er)s?",
    "mm": "millimet(?:re|er)s?",
    "km": "kilomet(?:re|er)s?",
    "ft": "foot|feet",
    "inch": "inch(?:es)?",
    "mi": "miles?",
    "yd": "yards?",
    "lb": "pounds?",
    "oz": "ounces?",
    "s": "seconds?",
    "ms": "milliseconds?",
    "min": "minutes?",
    "h": "hours?",
    "day": "days?",
    "week": "weeks?",
    "month": "months?",
    "year": "years?",
    "decade": "decades?",
    "century": "century|centuries",
    "°C": "degrees? celsius|degrees? centigrade|degrees? c",
    "°F": "degrees? fahrenheit|degrees? f",
    "°": "degrees?",
    "USD": "(?:us )?dollars?",
    "EUR": "euros?",
    "GBP": "pounds? sterling",
    "JPY": "yen",
    "cent": "cents?",
    "Hz": "hertz",
    "W": "watts?",
    "kW": "kilowatts?",
    "MW": "megawatts?",
    "kWh": "kilowatt[ -]hours?",
    "V": "volts?",
    "byte": "bytes?",
    "kB": "kilobytes?",
    "MB": "megabytes?",
    "GB": "gigabytes?",
    "TB": "terabytes?",
}


def _pattern(symbol: str) -> str:
    """A single capital before a point is an initial: in 1911 J. R. Weiss."""
    return re.escape(symbol) + (r"(?!\.[ ]?\w)" if len(symbol) == 1 and symbol.isupper() else "")


_END = r"(?![A-Za-z0-9\u00c0-\u0dff])"
_ONE = (
    "(?:"
    + "|".join(map(_pattern, sorted({*_SYMBOLS, *CURRENCIES}, key=len, reverse=True)))
    + "|(?i:"
    + "|".join(sorted(_NAMES.values(), key=len, reverse=True))
    + f")){_END}"
)
UNIT = rf"{_ONE}(?:(?:/|[ ]per[ ](?!cent)){_ONE})?"
"""Pattern of a unit or a quotient of two, behind white space or a hyphen or nothing."""

_NAMED = [(re.compile(pattern, re.IGNORECASE), name) for name, pattern in _NAMES.items()]
_QUOTIENT = re.compile(r"/| per (?!cent)")


def unit_named(written: str) -> str:
    """The one name of a unit that :data:`UNIT` found.

    Examples
    --------
    >>> [unit_named(unit) for unit in ("percent", "Kilometres per hour", "mph")]
    ['%', 'km/h', 'mi/h']
    """
    return "/".join(map(_name, _QUOTIENT.split(written)))


def _name(written: str) -> str:
    known = _SYMBOLS.get(written) or CURRENCIES.get(written)
    return known or next((name for pattern, name in _NAMED if pattern.fullmatch(written)), written)
