"""What pages and messages call the marks of style of a text and the traits of a model's answers."""

# `measures.style.MARKS`, in its order.
MARKS = {
    "list": "a list",
    "heading": "a heading",
    "bold": "bold type",
    "code": "code",
    "table": "a table",
    "link": "a link",
    "refusal": "a refusal",
    "polite": "a polite phrase",
    "exclaims": "an exclamation mark or emoji",
    "asks_back": "a question at its end",
}
# `measures.imitation.compare`.
TRAITS = {
    "length": "length",
    "ended": "answers that end by themselves",
    "refusal": "refusals",
    "list": "lists",
    "heading": "headings",
    "code": "code",
    "json": "JSON",
}
