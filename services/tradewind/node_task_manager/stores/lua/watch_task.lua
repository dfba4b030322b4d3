-- Begins to keep the events of a flow's node task. A component keeps those of up to `most` node tasks at a time, not
-- counting ended ones.
-- KEYS[1] any key of the shard. args: base, now, limits, run, component (where its node is), within (its id within the
-- run), most. Returns "watched" when its events were kept before, "new" when they are from now on, "ended" when the
-- node task has ended, "unknown" when its component does not exist, "full" when too many are watched.
--!include records
--!include task_events
local function ended(within)
  local record = task(args.run .. ':' .. within)
  return record and TERMINAL[record.status]
end

local function watch()
  local comp = component(args.run, args.component)
  if not comp then return 'unknown' end
  if ended(args.within) then return 'ended' end
  if task_events.watched(comp, args.run .. ':' .. args.within) then return 'watched' end
  local names, open = {}, 0
  for within in string.gmatch(comp.watched or '', '%S+') do
    names[#names + 1] = within
    if not ended(within) then open = open + 1 end
  end
  if open >= args.most then return 'full' end
  names[#names + 1] = args.within
  set_eventful(comp, 'watched', ' ' .. table.concat(names, ' ') .. ' ')
  return 'new'
end

local answer = watch()
write_all()
return cmsgpack.pack(answer)
