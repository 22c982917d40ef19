"""What can end the demo before its end.

DemoError    something did not come true; the message is for whoever ran `make demo`
"""


class DemoError(Exception):
    """Something that the demo promised did not come true, or it cannot run here; the message says what to do."""
