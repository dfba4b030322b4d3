--!include records
-- Reads workers in the order of their ids. KEYS: as records.lua. args: after, limit, include_offline, only_called (only
-- workers with an api_url), max_checked (ids at most), max_bytes. Returns {time, records, the last id checked or '' at
-- the end}.
local ids = call('ZRANGEBYLEX', args.only_called and CALLED or IDS,
  args.after == '' and '-' or '(' .. args.after, '+', 'LIMIT', 0, args.max_checked)
if #ids == 0 then return answer({time, {}, ''}) end
local since = args.include_offline and recorded_after or alive_after
local rows, bytes = {}, 0
for i, beat in ipairs(call('ZMSCORE', ALIVE, unpack(ids))) do
  local row = beat and tonumber(beat) > since and record(ids[i])
  if row then
    rows[#rows + 1] = row
    bytes = bytes + size(row)
  end
  if #rows == args.limit or bytes > args.max_bytes then return answer({time, rows, ids[i]}) end
end
return answer({time, rows, #ids == args.max_checked and ids[#ids] or ''})
