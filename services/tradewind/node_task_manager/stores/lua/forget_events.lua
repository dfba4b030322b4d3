-- Removes the events of a component's watched node tasks: a later run may have the same name.
local function forget_events(run, watched)
  for within in string.gmatch(watched or '', '%S+') do
    call('UNLINK', base .. 'task_events:' .. run .. ':' .. within)
  end
end
