"""The pipelines' transforms: `DataFrame -> DataFrame` functions, named as `transforms.module:function` by a pipeline's YAML."""
