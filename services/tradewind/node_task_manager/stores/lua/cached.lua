-- Cached results, and who works them out. A cache's generation is a random text: entries of another generation do not
-- count, so without its generation the cache is empty. Args: now, fresh (the generation to set if there is none).
--!include records
local cached = {GENERATION_MS = 400 * 24 * 3600 * 1000}

function cached.generation_of(key)
  local generation = call('GET', key)
  if generation then
    call('PEXPIRE', key, cached.GENERATION_MS)
  else
    generation = args.fresh
    call('SET', key, generation, 'PX', cached.GENERATION_MS)
  end
  return generation
end

-- Returns the entry under a key, a list that begins with its generation and its end; nil when it does not count.
function cached.valid(key, generation)
  local text = call('GET', key)
  local found = text and cmsgpack.unpack(text)
  if found and found[1] == generation and found[2] > time then return found end
end

-- Whether the caller is working out the result, and the cache was not cleared since it began.
function cached.holds_flight(flight_key, generation_key)
  local flight = cached.valid(flight_key, args.generation)
  return flight and flight[3] == args.token and call('GET', generation_key) == args.generation
end

function cached.store(key, generation, ms, value)
  call('SET', key, cmsgpack.pack({generation, time + ms, value}), 'PX', ms)
end
