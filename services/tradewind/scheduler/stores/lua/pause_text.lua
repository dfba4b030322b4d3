-- Returns the text for the ledger that says who paused a flow, and why.
local function pause_text(by, note) return 'paused by "' .. by .. '"' .. (note ~= '' and ': ' .. note or '') end
