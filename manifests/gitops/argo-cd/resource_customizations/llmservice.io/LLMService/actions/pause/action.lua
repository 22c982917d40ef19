obj.spec.generation = "paused"
return obj
