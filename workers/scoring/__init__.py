"""The resident scorer: requests of all callers from a Redis stream, answers by correlation id.

`python -m workers.scoring` loads no model library before the first request. A Celery task could not
put requests of several callers into one batch; see docs/adr/0010.
"""
