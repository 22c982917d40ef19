obj.spec.generation = "running"
return obj
