--!include add
local function bump(key, amount)
  return add(key, amount)
end
