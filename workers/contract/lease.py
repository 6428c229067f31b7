"""The lease protocol: at most one live trainer per run, whatever is lost, doubled or killed.

Keys per run (names in `workers.contract.wire`):

    lease    "<attempt>:<token>" of whoever trains now; expires unless renewed
    fence    the highest attempt that was ever claimed; it and all below never start again
    wanted   the highest attempt that waits for the lease; the holder of a lower one makes room

An attempt may start only after CLAIM said `claimed`. Its supervisor renews every few seconds and
kills its trainer *before* the lease it last renewed can have run out, so the next claim finds the
run without one. The scripts run inside Redis, hence atomically; both sides use these texts.

A Redis without an append-only file forgets claims when it restarts. Until it has been up for one
lease, everybody whose claim it forgot has either renewed (which restores it) or killed its trainer;
so there an attempt that existed before the restart is claimed only after that time.
"""

# KEYS lease, fence, wanted; ARGV attempt, token, lease in milliseconds.
# claimed | held (an older attempt's lease lives: ask again) | superseded (never start)
CLAIM = """
local mine = ARGV[1] .. ':' .. ARGV[2]
local attempt = tonumber(ARGV[1])
local holder = redis.call('GET', KEYS[1])
if holder == mine then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    return 'claimed'
end
if attempt <= tonumber(redis.call('GET', KEYS[2]) or '0') then return 'superseded' end
if attempt < tonumber(redis.call('GET', KEYS[3]) or '0') then return 'superseded' end
if holder then
    redis.call('SET', KEYS[3], attempt, 'PX', ARGV[3])
    return 'held'
end
redis.call('SET', KEYS[1], mine, 'PX', ARGV[3])
redis.call('SET', KEYS[2], attempt, 'EX', 7776000)
return 'claimed'
"""

# KEYS lease, fence, wanted; ARGV attempt, token, lease in milliseconds.
# renewed | wanted (renewed, but a later attempt waits: make room) | lost (kill the trainer now)
RENEW = """
local mine = ARGV[1] .. ':' .. ARGV[2]
local attempt = tonumber(ARGV[1])
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= mine then return 'lost' end
if tonumber(redis.call('GET', KEYS[2]) or '0') > attempt then return 'lost' end
redis.call('SET', KEYS[1], mine, 'PX', ARGV[3])
redis.call('SET', KEYS[2], attempt, 'EX', 7776000)
if tonumber(redis.call('GET', KEYS[3]) or '0') > attempt then return 'wanted' end
return 'renewed'
"""

# KEYS lease; ARGV attempt, token. Nothing happens when the lease is not ours.
RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] .. ':' .. ARGV[2] then redis.call('DEL', KEYS[1]) end
return 'released'
"""

# KEYS fence; ARGV attempt. fenced (this attempt will never start) | claimed (it has started)
FENCE = """
local attempt = tonumber(ARGV[1])
if tonumber(redis.call('GET', KEYS[1]) or '0') >= attempt then return 'claimed' end
redis.call('SET', KEYS[1], attempt, 'EX', 7776000)
return 'fenced'
"""
