-- The health of an LLMService (llmservices.llmservice.io). Its status follows kstatus: observedGeneration, and the
-- conditions Ready, Reconciling and Stalled, the last two only while they are true.
--
-- A fleet that is paused on purpose is as it was asked to be, so it is Healthy. It is not Suspended: Argo CD waits for
-- what is Suspended, and a sync wave that pauses a fleet would never end.

local function condition_of(conditions, kind)
  for _, condition in ipairs(conditions or {}) do
    if condition.type == kind then
      return condition
    end
  end
  return nil
end

local function health(status, reason, message)
  return {status = status, message = reason .. ": " .. message}
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "Deleting", "engines are resumed first where spec.deletionPolicy is resume")
end

-- A status that was never written says -1, and one about an earlier spec must not be taken for an answer to this one.
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "NotObserved", "the operator has not reported on the present spec yet")
end

local stalled = condition_of(status.conditions, "Stalled")
if stalled ~= nil and stalled.status == "True" then
  return health("Degraded", stalled.reason, stalled.message)
end

local reconciling = condition_of(status.conditions, "Reconciling")
if reconciling ~= nil and reconciling.status == "True" then
  return health("Progressing", reconciling.reason, reconciling.message)
end

local ready = condition_of(status.conditions, "Ready")
if ready == nil then
  return health("Progressing", "NotObserved", "there is no condition Ready yet")
end
if ready.status == "True" then
  return health("Healthy", ready.reason, ready.message)
end
return health("Progressing", ready.reason, ready.message)
