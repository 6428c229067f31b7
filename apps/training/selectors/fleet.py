"""Which machines there are: what their workers last said of themselves, read from Redis."""

import redis
from django.conf import settings

from workers.contract import fleet


def fleet_look() -> fleet.Fleet | None:
    """The workers that were heard in the last half minute; None when Redis does not answer."""
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
    try:
        pipe = client.pipeline(transaction=False)
        pipe.zrange(fleet.WORKERS_KEY, 0, -1)
        pipe.hgetall(fleet.HEARD_KEY)
        instances, heard = pipe.execute()
        keys = [fleet.worker_key(instance.decode()) for instance in instances]
        reports = client.mget(keys) if keys else []
    except (redis.RedisError, OSError):
        return None
    finally:
        client.close()
    return fleet.Fleet(
        workers=fleet.reports_of(reports),
        heard={queue.decode(): float(at) for queue, at in heard.items()},
    )
