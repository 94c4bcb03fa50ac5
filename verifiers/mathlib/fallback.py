"""The second reader: math-verify's LaTeX grammar (latex2sympy2_extended).

For notation that our own grammar does not have (sums, integrals, limits, derivatives). It
is used without math-verify's search for an expression in the text, which falls back to
parts of it: the grammar has to consume the whole text.
"""

from typing import Any

from verifiers.mathlib.errors import Unparsable

MAX_TEXT = 2000
MAX_NESTING = 20


def _nesting(text: str) -> int:
    """The greatest depth of brackets of all kinds; its parser is exponential in it."""
    depth = deepest = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    return deepest


def read(text: str) -> Any:
    """A sympy expression for the whole text; Unparsable otherwise."""
    import sympy
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from latex2sympy2_extended.math_normalization import NormalizationConfig

    if "\\" not in text or len(text) > MAX_TEXT or _nesting(text) > MAX_NESTING:
        raise Unparsable("no LaTeX of usual size")
    try:
        value = latex2sympy(
            text,
            is_real=True,
            convert_degrees=False,
            normalization_config=NormalizationConfig(units=False),
            conversion_config=ConversionConfig(lowercase_symbols=False),
        )
    except Exception as error:  # its parser raises whatever it meets
        raise Unparsable(f"latex2sympy: {type(error).__name__}") from error
    if not isinstance(value, sympy.Expr) or value.atoms(sympy.Float):
        raise Unparsable("latex2sympy gives no exact expression")
    return value.doit()
