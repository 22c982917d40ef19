"""LLMService: pause and resume token generation on fleets of LLM engines, declared in Kubernetes."""
