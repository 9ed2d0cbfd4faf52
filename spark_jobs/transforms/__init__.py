"""The pipelines' transforms: `DataFrame -> DataFrame` functions, which `dags/pipelines/*.yaml` name as `transforms.module:function`."""
