"""Lists of words in one text."""


def word_list(text: str) -> tuple[str, ...]:
    """The words of a text such as `drum, paper boat, kite`."""
    return tuple(text.split(", "))
