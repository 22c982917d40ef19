"""What LLMService is tested with: a real control plane, simulated engines, real engines on a CPU."""
