-- A doctor's findings: {check, subject, problem, mended} each. Uses args: recheck (names of findings to check a second
-- time, or nil on a first pass), mend (whether the second pass repairs what it finds).
local findings, found, examined, fits
do
  local recheck
  fresh(function()
    if not findings or #findings > 0 then findings = {} end
    recheck = args.recheck and {}
    if recheck then
      for _, name in ipairs(args.recheck) do recheck[name] = true end
    end
  end)

  -- Records a broken invariant. `mend` is a function that repairs it, nil if nothing can.
  function found(check, subject, problem, mend)
    subject = plain(subject)
    if recheck and not recheck[check .. ' ' .. subject] then return end
    local mended = recheck ~= nil and args.mend and mend ~= nil
    if mended then mend() end
    findings[#findings + 1] = {check, subject, plain(problem), mended}
  end

  -- Examines one record or entry of an index. If it cannot be read, because somebody has changed it by hand, that is
  -- the finding, and the others are still examined.
  function examined(subject, examine, ...)
    local readable, problem = pcall(examine, ...)
    if readable then return end
    -- Where the first pass could read it, mending it has failed.
    if recheck and not recheck['unreadable ' .. plain(subject)] then error(problem) end
    local why = type(problem) == 'table' and problem.err or problem
    found('unreadable', subject, 'it cannot be read: ' .. why .. '; put it right, remove it, or restore a backup')
  end

  -- Whether a key is of the type that scripts need, or not there. Reports another one, which mending removes; `result`
  -- says what follows from it.
  function fits(kind, key, result, subject)
    local actual = redis.call('TYPE', key).ok
    if actual == kind or actual == 'none' then return true end
    found('key-of-another-type', subject or key, 'it is a ' .. actual .. ' in place of a ' .. kind .. (result or ''),
      function() redis.call('DEL', key) end)
    return false
  end
end
