"""File formats: named arrays, parameters, graphs, exported programs, and nnabla's formats.

    replacing.py          atomic replacement of files
    storage.py            named arrays in safetensors files
    archives.py           zip archives of a few members
    parameter_files.py    parameters, in each format that nngrad reads
    nnabla_files.py       nnabla's formats
    nnabla_networks.py    reads nnabla's networks (functions: nnabla_functions.csv)
    nnabla_writing.py     writes graphs as nnabla's networks
    graphs/               graphs, as tables
    exporting/            compiled programs, which `nn.load_exported` runs
"""
