module llmservice.test/kind/pause

go 1.24.0
