-- Runs a script as Argo CD does one without the standard libraries, for Lua 5.1 to 5.4:
--     lua run.lua SCRIPT < a Lua chunk that returns the object
-- The script sees the basic functions, `table` and the object, as `obj`; what it returns is written as JSON.

local environment = {table = table, obj = (loadstring or load)(io.read("*a"))()}
for _, name in ipairs({
  "assert", "error", "ipairs", "next", "pairs", "pcall", "select", "tonumber", "tostring", "type", "unpack"
}) do
  environment[name] = _G[name]
end

local script
if setfenv then
  script = setfenv(assert(loadfile(arg[1])), environment)
else
  script = assert(loadfile(arg[1], "t", environment))
end

local encode

local function encode_string(text)
  return '"' .. text:gsub('[%c"\\]', function(character)
    return ("\\u%04x"):format(character:byte())
  end) .. '"'
end

local function encode_table(value)
  local parts = {}
  if value[1] ~= nil or next(value) == nil then  -- an empty table is a list, as for Argo CD
    for _, item in ipairs(value) do
      parts[#parts + 1] = encode(item)
    end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  for key, item in pairs(value) do
    parts[#parts + 1] = encode_string(key) .. ":" .. encode(item)
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

function encode(value)
  local kind = type(value)
  if kind == "table" then
    return encode_table(value)
  elseif kind == "string" then
    return encode_string(value)
  end
  return kind == "nil" and "null" or tostring(value)
end

print(encode(script()))
