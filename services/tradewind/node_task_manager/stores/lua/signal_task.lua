-- Sends a signal to a node task: the signal ends its wait, or is kept until it waits.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, signal {task_id, component_id, signal,
-- payload, by, request_id, attempt (the one that the caller believes to wait; -1: none), handle (to emit the payload
-- by; "" to run again)}, most, max_of_run (signals kept), requests (ids remembered).
-- Returns Effects; results: "resumed", "kept", or why nothing happened: "unknown", "ended", "stopping", "full", or
-- "changed" when the node task is not in the state that the caller believes.
--!include claim
local given = args.signal
local comp = component(run_of(given.task_id), given.component_id)
local field = comp and place_of(given.task_id, comp.run) .. 'asked'
local asked = comp and given.request_id ~= '' and call('HGET', comp.key, field)
asked = asked and cmsgpack.unpack(asked) or {}

local function known_answer()
  for _, each in ipairs(asked) do
    if each[1] == given.request_id then return each[2] end
  end
end

local function deliver()
  local record = task(given.task_id)
  if record and TERMINAL[record.status] then return 'ended' end
  if comp.stop or record and record.stop then return 'stopping' end
  if not record and fan_out.is_item(given.task_id) then return 'unknown' end
  local signal = {at = time, signal = given.signal, payload = given.payload, by = given.by}
  if not record or record.status ~= 'suspended' then
    if given.attempt >= 0 then return 'changed' end
    return suspension.keep(comp, given.task_id, signal, args.most, args.max_of_run) and 'kept' or 'full'
  end
  if (record.attempt or 0) ~= given.attempt then return 'changed' end
  suspension.resume(record, comp, signal, given.handle, given.payload)
  return 'resumed'
end

local before = known_answer()
effects.results[1] = before or comp and deliver() or 'unknown'
if not before and given.request_id ~= '' and (effects.results[1] == 'resumed' or effects.results[1] == 'kept') then
  asked[#asked + 1] = {given.request_id, effects.results[1]}
  if #asked > args.requests then table.remove(asked, 1) end
  call('HSET', comp.key, field, cmsgpack.pack(asked))
end
return cmsgpack.pack(conclude())
