-- By whom a flow is paused, and why, for the ledger.
local function paused_words(by, note) return 'paused by ' .. by .. (note ~= '' and ': ' .. note or '') end
