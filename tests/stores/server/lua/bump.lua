--!include add
local calls, ever = nil, 0
fresh(function() calls = 0 end)
local function bump(key, amount)
  calls, ever = calls + 1, ever + 1
  return add(key, amount)
end
