"""When a pair was decided, as something that a reward model reads.

The chat template of its tokenizer puts a line before the first message. In training the line holds
the date of each row; the template that is saved holds the newest one, so that whatever scores by
that template asks what people prefer now.
"""

import re
from datetime import UTC, datetime

DECIDED_IN = "decided_in"  # the template's variable
_SET = re.compile(r'{%- set decided_in = decided_in or "[^"]*" -%}')
_LINE = (
    '{%- if messages -%}{%- set messages = [{"role": messages[0].role, "content": "Decided in " ~ '
    'decided_in ~ ".\\n" ~ messages[0].content}] + messages[1:] -%}{%- endif -%}'
)


def period(seconds: float, length: str) -> str:
    """The `year`, `quarter` or `month` (UTC) of Unix seconds: 2026, 2026-Q4, 2026-11."""
    date = datetime.fromtimestamp(seconds, UTC)
    if length == "year":
        return f"{date:%Y}"
    return f"{date:%Y}-Q{(date.month + 2) // 3}" if length == "quarter" else f"{date:%Y-%m}"


def dated_template(template: str, now: str) -> str:
    """`template` with the line, which says `now` unless the variable is given. One that has a line
    already says the new date."""
    begin = '{%- set decided_in = decided_in or "' + now + '" -%}'
    if _SET.match(template):
        return _SET.sub(begin, template, count=1)
    return begin + _LINE + template
