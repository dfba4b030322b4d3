-- What a doctor finds: {check, subject, problem, mended} each. Uses args: again (names of findings to look at once more, or
-- nil), mend (whether what is found at a second look is put right).
local findings, again
fresh(function()
  if not findings or #findings > 0 then findings = {} end
  again = args.again and {}
  if again then
    for _, name in ipairs(args.again) do again[name] = true end
  end
end)

-- Notes a broken invariant; `mend`, where it can be mended, puts it right.
local function found(check, subject, problem, mend)
  if again and not again[check .. ' ' .. subject] then return end
  local mended = again ~= nil and args.mend and mend ~= nil
  if mended then mend() end
  findings[#findings + 1] = {check, subject, problem, mended}
end
