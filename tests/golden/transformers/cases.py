# Shared by make-golden and the tests: case -> arguments of tools/make-model; and the tokens that are evaluated.
CASES = {
    'tiny-llama': ['tiny-llama'],
    'tiny-mistral': ['tiny-mistral'],
    'tiny-mistral-window': ['tiny-mistral', '--set', 'window=8'],  # safetensors only: GGUF has no window for this family
    'tiny-mixtral': ['tiny-mixtral'],
    'tiny-qwen2': ['tiny-qwen2'],
    'tiny-qwen3': ['tiny-qwen3'],
    'tiny-qwen3moe': ['tiny-qwen3moe'],
    'tiny-gemma3': ['tiny-gemma3'],
}
TOKENS = [1, 475, 311, 340, 446, 290, 388, 417, 4, 35, 120, 447, 238, 260, 459, 267, 31, 98, 499, 3, 222, 222, 401, 77]
