"""File formats: named arrays, parameters, graphs, and exported programs.

    replacing.py          atomic replacement of files
    storage.py            named arrays in safetensors files
    archives.py           zip archives of a few members
    parameter_files.py    parameters, in each format that nngrad reads
    formats.py            formats that packages above add
    graphs/               graphs, as tables
    exporting/            compiled programs, which `nn.load_exported` runs
"""
