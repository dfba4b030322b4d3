-- Removes the events of the node tasks of a component that somebody has watched: a later run may have its name.
local function forget_events(run, watched)
  for within in string.gmatch(watched or '', '%S+') do call('UNLINK', base .. 'task_events:' .. run .. ':' .. within) end
end
