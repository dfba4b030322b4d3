-- Looks for broken invariants of a cache in the shard's store, and mends them on a second pass.
-- KEYS: index, generation, cleaner. args: now, name, at (cursor, "" to begin), records (about how many to examine),
--   recheck (names of findings to check a second time, or nil), mend, cleaner (examine only while this replica leads
--   the cleaning; "" for always).
-- Returns {records, findings {check, subject, problem, mended}, cursor ("" at the end)}.
--!include cached
--!include findings
local MARGIN = 1000

local function check_ttl(key, subject, ms)
  if call('PTTL', key) == -1 then
    found('no-time-to-live', subject, 'it would stay for ever', function() call('PEXPIRE', key, ms) end)
  end
end

local function examine(key, ends)
  local subject = string.match(key, '(cache:.+)$')
  if call('EXISTS', key) == 1 then
    check_ttl(key, subject, math.max(1, ends - time))
  elseif ends > time + MARGIN then
    found('index-without-record', subject, 'the result that the index of its cache names is not there',
      function() call('ZREM', KEYS[1], key) end)
  end
end

if args.cleaner ~= '' and call('GET', KEYS[3]) ~= args.cleaner then return cmsgpack.pack({0, findings, ''}) end
local newest = call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
if args.at == '' and newest then
  local ms = math.max(1, tonumber(newest) - time)
  check_ttl(KEYS[1], 'cache_index:' .. args.name, ms)
  local left = call('PTTL', KEYS[1])
  if left >= 0 and left < ms - MARGIN then
    found('cache-index-expires', args.name, 'it expires before the last of its results', function()
      call('PEXPIRE', KEYS[1], ms)
    end)
  end
  check_ttl(KEYS[2], 'cache_generation:' .. args.name, cached.GENERATION_MS)
end
local following, members = unpack(call('ZSCAN', KEYS[1], args.at == '' and '0' or args.at, 'COUNT', args.records))
for at = 1, #members, 2 do examine(members[at], tonumber(members[at + 1])) end
return cmsgpack.pack({#members / 2, findings, following ~= '0' and following or ''})
