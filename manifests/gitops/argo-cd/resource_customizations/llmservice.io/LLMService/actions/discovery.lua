-- Both are offered where spec.generation is absent: then nobody has asked for anything yet.
local generation = obj.spec.generation
local deleted = obj.metadata.deletionTimestamp ~= nil

local actions = {}
actions["pause"] = {
  ["disabled"] = deleted or generation == "paused",
  ["iconClass"] = "fa fa-fw fa-pause-circle",
  ["displayName"] = "Pause generation"
}
actions["resume"] = {
  ["disabled"] = deleted or generation == "running",
  ["iconClass"] = "fa fa-fw fa-play-circle",
  ["displayName"] = "Resume generation"
}
return actions
