--!include enter
-- Notes that a worker is alive; a worker that has lapsed is entered again in full. KEYS: as records.lua, then the
-- worker. args as enter.lua, and draining (whether it has begun to leave). Returns {register_again, drain, why it was
-- refused or ''}.
local before = record(worker[ID])
if before and before[INCARNATION] ~= worker[INCARNATION] then
  if has_word(before[REPLACED], worker[INCARNATION]) then return answer({false, true, ''}) end
  if is_alive(before) then return answer({true, false, ''}) end
end
if not before and is_full() then return answer({false, false, 'too_many_workers'}) end
local row, missing = enter(before)
if args.draining then drain(row) end
return answer({missing, row[STATUS] == 'draining', ''})
